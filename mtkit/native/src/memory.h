// Memory for arrays of numbers.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace mtkit {

// An array that begins at a cache line. It can be moved, not copied.
template <class T>
class Array {
public:
    Array() = default;
    Array(Array&& other) noexcept { swap(other); }
    Array& operator=(Array&& other) noexcept {
        swap(other);
        return *this;
    }
    ~Array() { std::free(data_); }

    // Numbers that are not set; what was in it is lost.
    void allocate(size_t size) {
        std::free(data_);
        data_ = nullptr;
        size_ = 0;
        if (size == 0) return;
        if (size > (SIZE_MAX - LARGE) / sizeof(T)) throw std::bad_alloc();
        const size_t unit = size * sizeof(T) < LARGE ? 64 : LARGE;
        const size_t bytes = (size * sizeof(T) + unit - 1) / unit * unit;
        data_ = static_cast<T*>(std::aligned_alloc(unit, bytes));
        if (data_ == nullptr) throw std::bad_alloc();
#ifdef __linux__
        if (unit == LARGE) madvise(data_, bytes, MADV_HUGEPAGE);
#endif
        size_ = size;
    }
    // New zeros.
    void resize(size_t size) {
        allocate(size);
        if (size > 0) std::memset(data_, 0, size * sizeof(T));
    }
    // Room for at least `size` numbers, for a buffer that is used again: zeros, or what was there.
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
    // A large page of memory: reading a large matrix is faster with few, large pages.
    static constexpr size_t LARGE = size_t{1} << 21;

    void swap(Array& other) {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }
    T* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace mtkit
