// Memory for arrays of numbers.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace mtkit {

// An array of zeros that begins at a cache line. It can be moved, not copied. Memory for large
// arrays is taken from the system when it is first written, so an unused part costs nothing.
template <class T>
class Array {
public:
    Array() = default;
    explicit Array(size_t size) { resize(size); }
    Array(Array&& other) noexcept { swap(other); }
    Array& operator=(Array&& other) noexcept {
        swap(other);
        return *this;
    }
    ~Array() { std::free(data_); }

    // New zeros; what was in it is lost.
    void resize(size_t size) {
        std::free(data_);
        data_ = nullptr;
        size_ = 0;
        if (size == 0) return;
        if (size > (SIZE_MAX - 64) / sizeof(T)) throw std::bad_alloc();
        const size_t bytes = (size * sizeof(T) + 63) / 64 * 64;
        data_ = static_cast<T*>(std::aligned_alloc(64, bytes));
        if (data_ == nullptr) throw std::bad_alloc();
        std::memset(data_, 0, bytes);
        size_ = size;
    }
    // Room for at least `size` numbers, for a buffer that is used again; what is in it is undefined.
    T* room(size_t size) {
        if (size > size_) resize(size + size / 4);
        return data_;
    }

    T* data() { return data_; }
    const T* data() const { return data_; }
    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    T& operator[](size_t i) { return data_[i]; }
    const T& operator[](size_t i) const { return data_[i]; }

private:
    void swap(Array& other) {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }
    T* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace mtkit
